"""May this tag go in? Strategies, filters, version ranges and the order of builds. Pure."""
