package campaign

// Row is one row of faults: what is done, how often it is wanted, and in which unit that is counted.
type Row struct {
	ID     string
	What   string
	Unit   string // of the counts
	Wanted int
	// Machines says that the row is also about the state machines, so that a change of them starts its count again.
	Machines bool
	// Windows is how many windows of calls at registers are wanted.
	Windows int
}

// Rows lists the rows that can be run, in order: R-26 by the simulator, the others by test/chaos/run.
func Rows() []Row {
	return []Row{
		{"R-01", "kill -9 of the server under mixed load", "runs", 1000, false, 0},
		{"R-01-3", "kill -9 of one of three nodes, two or all of them, under mixed load", "runs", 300, false, 0},
		{"R-03", "power cut of the server and its disk under mixed load: what was not synced is lost, or a share of it", "power cuts", 200, false, 0},
		{"R-04", "power cut of all three nodes at one instant, or of one while another is paused or cut off, under mixed load", "faults", 100, false, 0},
		{"R-05", "the last batch of a log, never synced, damaged at each place of its last 64 KiB in four ways", "positions", 65_536, false, 0},
		{"R-06", "bytes of a sealed log flipped, zeroed, copied, cut, removed or replaced", "damages", 10_000, false, 0},
		{"R-07-1", "a sync or a write of the server fails under mixed load, and what it was to write only looks written; then the power is cut", "faults", 200, false, 0},
		{"R-08", "a real disk of 64 MiB filled under mixed load, and emptied again; a server killed while it is full", "fills", 20, false, 0},
		{"R-09", "the disk of a follower or of the leader of three nodes slow, without an answer for 5 s, or without any ever again, under mixed load", "faults", 18, false, 0},
		{"R-09-1", "the disk of a single server slow, without an answer for 5 s, or without any ever again, under mixed load and large puts", "faults", 9, false, 0},
		{"R-10", "links between three nodes, or five, cut: the leader's, a follower's, a minority's, one way, one pair, flapping, swizzled; under mixed load", "calls", 1_000_000, false, 200},
		{"R-11", "the leader of three nodes killed, or stopped for 1 to 30 s, under mixed load", "faults", 100, false, 200},
		{"R-12", "links between three nodes late, stalled now and then, reset again and again, half open, or as narrow as a megabit a second, under mixed load", "seconds", 300, false, 0},
		{"R-14", "nodes added, removed, replaced and brought back without their disks, one to five of them, under mixed load, kills and cuts", "changes", 200, false, 0},
		{"R-14-1", "a node that lost its disk fetches 1 GiB of state while the others serve, under mixed load", "fetches", 20, false, 0},
		{"R-15", "a worker paused past its lease, settles with old, wrong and guessed tokens", "operations", 10_000, true, 0},
		{"R-16", "effects, keys put by completions, and money while the server is killed", "operations", 100_000, true, 0},
		{"R-17", "creates and commits repeated under one key while the server is killed", "operations", 100_000, true, 0},
		{"R-18", "128 MiB of a control group's 256 for a backlog of ten times that, then a group so small that the system ends the server, under mixed load", "runs", 10, false, 0},
		{"R-23-search", "searches at half of what a server can, 10 minutes a run: memory, goroutines and open files stay as they are, no search fails", "minutes", 120, true, 0},
		{"R-24", "all three nodes restarted in order, one after the other, under mixed load and callers of whom no call may fail", "rounds", 50, false, 0},
		{"R-24-1", "shards of three nodes handed to other nodes, nodes drained and back, under mixed load and callers of whom no call may fail", "rounds", 100, false, 0},
		{"R-26", "simulated clusters under faults, one history from each seed", "seeds", 20_000, false, 0},
		{"R-30", "git clients push, force, delete and clone while the server is killed, at points of a push too", "kills", 500, false, 0},
		{"R-31", "points stored, removed and searched while the server is killed, and searched by the first call after it", "kills", 1000, true, 0},
		{"R-34", "the leader of three nodes killed when it has ready and delayed tasks, leases, claims and waits", "runs", 50, false, 0},
	}
}

// Find returns the row of that id.
func Find(id string) (Row, bool) {
	for _, r := range Rows() {
		if r.ID == id {
			return r, true
		}
	}
	return Row{}, false
}
