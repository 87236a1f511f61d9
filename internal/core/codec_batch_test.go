package core

import (
	"reflect"
	"testing"
)

// The ops of batches, and what others say of them, which came with format 4.
func TestGoldenBytesOfBatches(t *testing.T) {
	batch := TaskID{1, 15: 2}
	follow := &TaskCreate{Queue: "reports", TaskKind: "report", Payload: []byte("{}"), Labels: []Label{{"env", "prod"}}}
	e := &Entry{Format: FormatShare, Stamp: 1_700_000_000_123, Proposer: 5<<32 | 1, Seq: 42, Commits: []Commit{{
		Partition: Partition{Tenant: 7, Namespace: 300, Index: 2}, Ops: []Op{
			&BatchOpen{ID: batch, Labels: []Label{{"env", "prod"}}, OnDone: follow, OnSuccess: &TaskCreate{Queue: "reports"}},
			&BatchOpen{ID: batch},
			&TaskCreate{ID: TaskID{2}, Queue: "mail", Batch: batch},
			&TaskCreate{ID: TaskID{2}, Queue: "mail", Batch: batch, Key: "k", Payload: []byte("p")},
			&BatchSeal{ID: batch},
			&BatchCancel{ID: batch, Reason: "wrong list", Rate: 500, Force: true},
			&BulkStart{ID: TaskID{3}, Action: BulkRetry, Tasks: TaskFilter{Batch: batch, Queue: "mail"}},
		},
	}}}
	goldenEntry(t, "format4_batches.golden", e)
}

func TestARefusalByABatchReadsBack(t *testing.T) {
	want := &Result{Refusal: &Refusal{Fact: WrongBatch{Batch: TaskID{1, 15: 2}, State: BatchSealed}}}
	if got, err := DecodeResult(AppendResult(nil, want)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestFollowUpsHaveIDsOfTheirOwn(t *testing.T) {
	batch := NewTaskID(1_700_000_000_000, 77, [9]byte{1, 2, 3})
	seen := map[TaskID]bool{batch: true}
	for opened := range uint64(100) {
		for _, id := range []TaskID{FollowUpID(batch, opened, false), FollowUpID(batch, opened, true), BatchJobID(batch, opened)} {
			if seen[id] || id.Partition() != 77 || id.Millis() != batch.Millis() {
				t.Fatalf("entry %d: %s", opened, id)
			}
			seen[id] = true
		}
	}
}
