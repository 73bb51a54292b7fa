"""Small stateless pieces that methods are made of."""
