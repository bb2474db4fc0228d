"""What runs on the ranks; imports nothing of the driver, and torch or Horovod only when they are needed."""
