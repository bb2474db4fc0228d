"""`make doctor`: look at a machine before and after `docker compose up`, and say what to mend.

Standard library only, here and in what is imported from spawner_config: it runs before anything is installed.
"""
