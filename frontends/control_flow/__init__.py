"""Branches and loops for every frontend: Relax functions that call each other."""
