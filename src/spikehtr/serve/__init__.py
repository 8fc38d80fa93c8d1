"""The workbench in a browser and the HTTP service: `spikehtr serve`. docs/how-to/workbench.md describes both."""
