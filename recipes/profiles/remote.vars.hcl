trajectories_url = "http://trajectories.example:8000"
