"""Side-by-side measurements of relaxc against its peers, and the models they run on."""
