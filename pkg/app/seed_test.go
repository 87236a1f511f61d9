// Package app holds the application benches of the queue's reference under their own names, so that its invocations
// work here. What they do is in bench/seedtest.
package app

import (
	"testing"

	"github.com/millrace/millrace/bench/seedtest"
)

func BenchmarkEnqueueParallel_Coalesced(b *testing.B) { seedtest.Enqueue(b, true) }

func BenchmarkEnqueueParallel_Direct(b *testing.B) { seedtest.Enqueue(b, false) }
