"""Code that runs on the ranks. It never imports the driver, and imports torch and Horovod only when needed."""
