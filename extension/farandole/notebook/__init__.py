"""The notebook interface: magics, dashboard and static charts."""
