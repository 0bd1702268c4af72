"""The tuning of an engine outside of a training: by trials on a store, without a model."""
