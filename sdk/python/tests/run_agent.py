"""Starts the agent as a module: the program of a worker is compiled once, and not at each start."""

import agent

if __name__ == "__main__":  # processes that multiprocessing starts import this file too
    agent.main()
