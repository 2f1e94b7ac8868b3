"""The picture of a graph and of its kernels: grouping, layout, SVG."""
