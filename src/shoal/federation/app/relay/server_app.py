"""Flower starts this once per run; it runs Shoal's loop."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds of the federation whose files are in the folder given by the run's configuration."""
    from shoal.federation.server_app import serve

    serve(grid, str(context.run_config["folder"]))
