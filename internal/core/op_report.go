package core

// Bounds of what the holder of a task tells of its work.
const (
	MaxProgressMessage = 256       // bytes; a longer message is cut
	MaxLogLine         = 4 << 10   // bytes; a longer line is cut
	MaxReportLines     = 500       // of one report
	MaxReportBytes     = 64 << 10  // of the lines of one report
	MaxCheckpoint      = 64 << 10  // bytes
	MaxLogLines        = 1000      // that are kept of a task: about the last ones
	MaxLogBytes        = 256 << 10 // of these
)

// TaskReport is what the holder of a running task tells of its work. It neither moves the end of the lease nor ends the attempt. The
// progress is of the attempt alone; the lines of the log and the checkpoint are kept for the attempts after it.
type TaskReport struct {
	Task  TaskID
	Token Token
	// Number counts the reports of an attempt from 1 on, so that one which is sent again is told. 0: it is not told.
	Number uint64

	HasProgress bool
	Percent     uint8 // 0 to 100
	Message     string
	Lines       []string // of the log
	Dropped     uint64   // lines that the holder dropped since its last report

	HasCheckpoint bool
	Checkpoint    []byte // empty: there is none from now on
}

// Kind returns the op's number.
func (*TaskReport) Kind() OpKind { return OpTaskReport }

func (op *TaskReport) task() TaskID { return op.Task }

// Misfit says what of the report is too large to be kept. What is only too long is cut.
func (op *TaskReport) Misfit() Fact {
	size := 0
	for _, line := range op.Lines {
		size += min(len(line), MaxLogLine)
	}
	switch {
	case op.Percent > 100:
		return Invalid{Field: "progress.percent", Message: "must be at most 100"}
	case len(op.Lines) > MaxReportLines:
		return TooLarge{Field: "lines", Limit: "report_lines", Max: MaxReportLines}
	case size > MaxReportBytes:
		return TooLarge{Field: "lines", Limit: "report_bytes", Max: MaxReportBytes}
	case len(op.Checkpoint) > MaxCheckpoint:
		return TooLarge{Field: "checkpoint", Limit: "checkpoint", Max: MaxCheckpoint}
	}
	return nil
}

// Progress is how far the holder of a task says that it is.
type Progress struct {
	Percent uint8
	Message string
	At      ShardTime // when it said so; 0: it said nothing
}

// LogLine is a line of a task's log.
type LogLine struct {
	Number  uint64 // among all lines of the task, from 1 on
	Attempt uint32
	At      ShardTime
	Text    string
}

// LogQuery asks for up to Limit lines of a task's log, those with numbers above After.
type LogQuery struct {
	Attempt uint32 // of which they are; 0: of any
	After   uint64
	Limit   int
}

// TaskLog is a part of a task's log.
type TaskLog struct {
	Lines   []LogLine
	Dropped uint64 // lines of all attempts that are not kept any more, or that holders dropped
	Last    uint64 // number of the last line that was looked at; 0: none
	More    bool   // there are lines after it
}
