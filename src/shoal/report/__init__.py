"""What a person sees of a run: tables, charts and self-contained pages made from run directories."""
