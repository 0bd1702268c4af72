"""Plans of a step: when each part of a checkpoint is copied and written within the steps (Checkflow, 2025)."""
