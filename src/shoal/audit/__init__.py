"""What a curious server could reconstruct from what clients really upload.

`wiretap` plays the first round and keeps what the server hears. `labels`, `closed_form`, `matching` and
`losses` are the ways to read it, `examination` tries them on one upload and measures what comes out, `plan`
names several uploads, and `page` shows them.
"""
