"""The workbench in a browser and the HTTP service: `spikehtr serve`. docs/workbench.md describes both."""
