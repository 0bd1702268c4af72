"""The engine's door. Training, retention and tuning speak with an engine by what is here; a backend is behind it, a folder of
``backends/``.

``open_engine.OpenEngine`` is the engine of one rank. ``backend`` has the protocols that a backend implements. A backend answers with
``records`` and ``faults``. The user sets ``options.Engine``. ``backends/table`` has the backends, and the rescue of what a dead attempt's
engine has left."""
