// Package bench holds the single-process benches of the queue's reference under their own names, so that its
// invocations work here. What they do is in bench/seedtest.
package bench

import (
	"testing"

	"github.com/millrace/millrace/bench/seedtest"
)

func TestProfile_FullCycle(t *testing.T) { seedtest.FullCycle(t) }

func BenchmarkGCPressure_SustainedEnqueue(b *testing.B) { seedtest.GCEnqueue(b) }

func BenchmarkGCPressure_ClaimSubmitCycle(b *testing.B) { seedtest.GCCycle(b) }
