"""The paper's tables, one command each: a YAML overlay of variants, a runner, and a renderer."""
