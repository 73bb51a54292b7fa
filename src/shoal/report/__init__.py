"""Tables, charts and self-contained HTML pages made from run directories."""
