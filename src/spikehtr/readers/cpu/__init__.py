"""Reading on a CPU by compiled functions; `engine.Engine` is the way in."""
