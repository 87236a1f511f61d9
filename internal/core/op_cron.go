package core

// A cron makes tasks by a schedule. Which instants the schedule has, its slots, is computed by leaders, who have zone data; Apply
// compares slots and does what follows from one. Entries before FormatShare have no crons. All times of crons are what most wall
// clocks show.

// Bounds of crons.
const (
	MaxCrons      = 10_000         // of one partition
	MaxCronRuns   = 100            // that are remembered of one cron
	MaxCronMissed = 100            // slots that CronCatchUpAll makes up for
	MaxSchedule   = 256            // bytes
	MaxZone       = 64             // bytes
	MaxCronJitter = 24 * 3_600_000 // milliseconds
	CronGrace     = 60_000         // milliseconds after which a slot counts as missed
)

// CronOverlap says what happens at a slot while the task of the run before has not ended. Numbers are stored.
type CronOverlap uint8

// What happens then.
const (
	CronSkip           CronOverlap = 0 // the slot makes no task
	CronAllow          CronOverlap = 1 // it makes one all the same
	CronQueueOne       CronOverlap = 2 // one run waits for the end of that task; further slots make none
	CronCancelPrevious CronOverlap = 3 // that task is cancelled, and the run begins when it has ended
)

// CronCatchUp says what becomes of slots that were missed. A slot is missed when the next one is due too, or when it is late by more
// than CronGrace. Numbers are stored.
type CronCatchUp uint8

// What becomes of them.
const (
	CronCatchUpOne  CronCatchUp = 0 // the last one runs, however late
	CronCatchUpNone CronCatchUp = 1 // none of them runs
	CronCatchUpAll  CronCatchUp = 2 // each runs, the last MaxCronMissed of them
)

// CronConfig is what an operator says of a cron, apart from the tasks that it makes.
type CronConfig struct {
	Schedule string // as package cron reads it, at most MaxSchedule bytes
	Zone     string // of the IANA database; empty = UTC
	Jitter   Millis // each task waits for a part of it, which is a hash of name and slot; at most MaxCronJitter
	Start    ShardTime
	End      ShardTime // slots are from Start to End; 0: no bound
	Paused   bool      // slots go by, until it is resumed
	Overlap  CronOverlap
	CatchUp  CronCatchUp
}

// CronChange says what a CronSet is about. Numbers are stored.
type CronChange uint8

// What a CronSet may be about.
const (
	CronChangeAll    CronChange = 0 // everything: the cron is made or replaced
	CronChangePause  CronChange = 1 // Paused alone; the cron must be there
	CronChangeResume CronChange = 2
)

// CronSet makes a cron, or replaces it. With another schedule, zone, start or end its slots are counted from the entry on. It changes
// the version only when something changed.
type CronSet struct {
	Name      string
	Change    CronChange
	Config    CronConfig // zero unless Change is CronChangeAll, as is Template
	Template  TaskCreate // of the tasks: without an id, a time, a unique key, an expiry and tasks to wait for
	IfVersion int64      // -1 = any
}

// CronDelete removes a cron with its list of runs. Tasks that it made stay. One that is not there is a success that says so.
type CronDelete struct {
	Name      string
	IfVersion int64 // -1 = any
}

// CronFire is what a leader proposes for a cron, or what makes it run by hand. It is refused with RevMismatch unless the cron is as the
// proposer saw it: so a slot is done once, however often it is proposed.
type CronFire struct {
	Name    string
	Version uint64    // of the cron; not with Trigger
	Slot    ShardTime // the next slot as it is stored; 0: none was computed since the schedule was set, and Next is the first
	Run     ShardTime // the slot that runs: Slot, or a later one; 0: none does
	Passed  uint32    // how many slots are passed over
	Next    ShardTime // the slot after these; Never: there is none
	Waiting bool      // instead of all that: the run that waits begins, whose slot is Slot
	Trigger TaskID    // instead of all that: a run by hand, whose task gets this id
}

// CronOutcome says what a run of a cron came to. Numbers are stored.
type CronOutcome uint8

// What a run comes to.
const (
	CronStarted  CronOutcome = 1 // it made a task
	CronWaits    CronOutcome = 2 // it makes one when the task before has ended
	CronOverlaps CronOutcome = 3 // it made none: the task before had not ended
	CronMissed   CronOutcome = 4 // it made none: its time was over
	CronRefused  CronOutcome = 5 // it made none: the task was refused
	CronReplaced CronOutcome = 6 // it made none: it waited, and a later slot came
)

// cronOutcomeBits are the low bits of OpResult.Version that have the outcome.
const cronOutcomeBits = 3

// CronVersion is what a CronFire answers in OpResult.Version: the number of the run and what it came to.
func CronVersion(run uint64, o CronOutcome) uint64 { return run<<cronOutcomeBits | uint64(o) }

// CronRunOf reads what CronVersion made. Without a run both are 0.
func CronRunOf(version uint64) (run uint64, o CronOutcome) {
	return version >> cronOutcomeBits, CronOutcome(version & (1<<cronOutcomeBits - 1))
}

// Cron is a cron as it is stored.
type Cron struct {
	CronConfig
	Name     string
	Template TaskCreate
	Version  uint64
	Created  ShardTime // stamps, not wall times
	Updated  ShardTime
	By       string    // principal that set it last
	Anchor   ShardTime // when its schedule was set: slots come after it
	Next     ShardTime // 0: it was not computed yet; Never: there is none
	Last     TaskID    // the task that it made last; zero: none
	Waiting  ShardTime // the slot of the run that waits; 0: none does
	Runs     uint64    // the number of the last run
	Recent   []CronRun // the last runs, the last one first: as many as were asked for. They are not stored with it
}

// CronRun is one run of a cron.
type CronRun struct {
	Number  uint64 // of the cron's runs, from 1
	Slot    ShardTime
	At      ShardTime // stamp
	Trigger bool      // by hand; Slot is when
	Outcome CronOutcome
	Task    TaskID // that it made, or will make; zero: none
	Passed  uint32 // slots that were passed over before it
	Code    string // with CronRefused: of the fact
	Message string // of the same, at most MaxReason bytes
	// State is that of the task as it is read; 0: the task is not there any more, or there is none. Began is the start of its last
	// delivery, and Ended its end; 0: there was none. They are not stored.
	State        State
	Began, Ended ShardTime
}

// CronQuery asks for a page of crons by name.
type CronQuery struct {
	After string // the page begins behind this one
	Limit int    // at least 1
	Bytes int    // of templates, about
	Runs  int    // how many of the last runs of each
}

// CronDue is a cron of which something is due.
type CronDue struct {
	Partition Partition
	Name      string
	Config    CronConfig
	Version   uint64
	Anchor    ShardTime
	Next      ShardTime // as in Cron
	Waiting   ShardTime // the slot of a run that waited, and may begin; 0: it is a slot of the schedule that is due
}

// Kind returns the op's number.
func (*CronSet) Kind() OpKind { return OpCronSet }

func (op *CronSet) place(partitions int) (uint16, bool) { return PlaceCron(op.Name, partitions), true }

// Kind returns the op's number.
func (*CronDelete) Kind() OpKind { return OpCronDelete }

func (op *CronDelete) place(partitions int) (uint16, bool) {
	return PlaceCron(op.Name, partitions), true
}

// Kind returns the op's number.
func (*CronFire) Kind() OpKind { return OpCronFire }

func (op *CronFire) place(partitions int) (uint16, bool) { return PlaceCron(op.Name, partitions), true }

// PlaceCron returns the partition of a cron, by its name. Its tasks are made there.
func PlaceCron(name string, partitions int) uint16 { return PlaceText([]byte(name), partitions) }
