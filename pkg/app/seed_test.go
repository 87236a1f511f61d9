// Package app holds the application benches of the queue's reference under their own names, so that its invocations
// work here. What they do is in bench/seedtest.
package app

import (
	"testing"

	"github.com/millrace/millrace/bench/seedtest"
)

func TestRaftBench_GRPC(t *testing.T) { seedtest.RaftStreams(t) }

func TestRaftBench_SmartRouting(t *testing.T) { seedtest.SmartRouting(t) }

func TestRaftBench_MultiShardScale(t *testing.T) { seedtest.MultiShardScale(t) }

func BenchmarkEnqueueParallel_Coalesced(b *testing.B) { seedtest.Enqueue(b, true) }

func BenchmarkEnqueueParallel_Direct(b *testing.B) { seedtest.Enqueue(b, false) }

func TestProducerThroughput_RESTPath(t *testing.T) { seedtest.Transport(t, "rest") }

func TestProducerThroughput_StreamPath(t *testing.T) { seedtest.Transport(t, "stream") }

func TestProducerThroughput_StreamBatchPath(t *testing.T) { seedtest.Transport(t, "stream-batch-16") }

func TestThroughput_RESTPath(t *testing.T) { seedtest.Transport(t, "workers-rest") }

func TestThroughput_StreamPath(t *testing.T) { seedtest.Transport(t, "workers-stream") }
