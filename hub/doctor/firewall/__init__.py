"""Check what users' containers can reach besides the internet, and print firewall rules that block this access."""
