"""The hub's side of the operators' page: the service and its scopes, and the notices that users see."""
