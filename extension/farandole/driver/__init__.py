"""The side of Farandole that runs in the kernel that leads."""
