"""Starts the agent as a module: the program of a worker is compiled once, and not at each start."""

import agent

agent.main()
