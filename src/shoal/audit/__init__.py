"""What a curious server could reconstruct from clients' actual uploads.

`wiretap` runs the first round and records what the server receives. `labels`, `closed_form`, `matching` and
`losses` are the attacks on it, `examination` tries them on one upload and measures the reconstructions,
`plan` turns the names of uploads into specs, and `page` shows the results.
"""
