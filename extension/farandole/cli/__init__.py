"""The command ``farandole``, with which a laptop logs in at a hub and leads clusters there."""
