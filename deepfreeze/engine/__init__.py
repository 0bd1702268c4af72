"""The engine's door. Training, retention and tuning speak with an engine by what is here; a backend is behind it, a folder of
``backends/``.

``open_engine.OpenEngine`` is an engine of one rank; ``backend`` is the protocol that a backend implements; ``records`` and ``faults`` are
what it answers with; ``options.Engine`` is what its user sets; ``rescue`` finishes what a dead attempt's engine has left."""
