package millrace

import (
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/prototext"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
)

// TestSettersOfAJobReturnACopy sets everything that a job has: the job that it was set on stays as it was declared.
func TestSettersOfAJobReturnACopy(t *testing.T) {
	declared := Job[string, string]("thumb").Queue("img").Attempts(8)
	before := specOf(t, declared)
	changed := declared.Queue("other").Attempts(1).Crashes(2).Deliveries(3).Lease(time.Second).MaxRun(time.Minute).Priority(4).
		Retry(RetryPolicy{Backoff: Fixed, Base: time.Second}).Codec(otherCodec{})
	if got := specOf(t, declared); got != before {
		t.Errorf("the declared job became\n%s\nbut was\n%s", got, before)
	}
	if declared.codecOr(JSON) != JSON {
		t.Error("the declared job has the codec of its copy")
	}
	if got := specOf(t, changed); got == before {
		t.Errorf("the copy is as the job was declared: %s", got)
	}
	if changed.Name() != declared.Name() {
		t.Errorf("the copy is of kind %s, want %s", changed.Name(), declared.Name())
	}
}

// specOf is the text of a task of j, as it is sent.
func specOf(t *testing.T, j *JobOf[string, string]) string {
	t.Helper()
	var spec millracev1.TaskSpec
	if err := j.fill(&spec, JSON, "a", nil); err != nil {
		t.Fatal(err)
	}
	return prototext.Format(&spec)
}

type otherCodec struct{ jsonCodec }
