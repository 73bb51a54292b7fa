"""Small pieces that methods are made of."""
