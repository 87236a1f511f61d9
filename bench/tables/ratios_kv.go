package tables

import (
	"math"

	"github.com/millrace/millrace/bench"
)

// By how much a put may become slower with its length and with the number of its replicas. Aurora's
// own slopes are 6.3 and 2.45.
const (
	// lengthSlope is the largest healthy ratio of the rate at 32 B to that at 2,048 B.
	lengthSlope = 3.0
	// lengthSlopeDisk holds where the disk is the wall of the long values.
	lengthSlopeDisk = 6.3
	// followerSlope is the largest healthy ratio of the rate with two followers to that with seven.
	followerSlope = 2.45
	// replicaGrowth is by how much a replica's CPU per put may grow from three replicas to eight.
	replicaGrowth = 1.15
)

// kvRatios are the ratios between rows of keys.
func kvRatios() []Ratio {
	// run begins the commands that look further.
	const run = "millrace bench run "
	return []Ratio{
		{
			Name: "KV 32 ÷ 2,048 B", Reference: "6.3",
			Over: Pick{"kv.aurora.len", "value-32", ""}, Under: Pick{"kv.aurora.len", "value-2048", ""},
			Best: "long values are beyond their aim, or the disk is their wall and the slope no steeper than the reference's",
			AtBest: func(r *bench.Result, d bench.Durability, under float64) bool {
				if under >= aimOf(lengthCells(), 2048) {
					return true
				}
				long := rowOf(r, "kv.aurora.len", "value-2048", d)
				short := rowOf(r, "kv.aurora.len", "value-32", d)
				if long == nil || short == nil {
					return false
				}
				// BoxBound tells whether the disk was used up while the long values were put.
				_, disk := long.BoxBound()
				slope := short.Summary.Median() / under
				return disk && slope > lengthSlope && slope <= lengthSlopeDisk
			},
			Bands: []Band{
				{Max: lengthSlope, Status: bench.Healthy, Cause: "half as steep as the reference"},
				{Max: lengthSlopeDisk, Status: bench.Notable, Cause: "no steeper than the reference, but steeper than the 3 that is to be reached", Next: run + "kv.aurora.len"},
				{Status: bench.Suspicious, Cause: "steeper than the reference", Next: run + "kv.aurora.len"},
			},
		},
		{
			Name: "KV 2 ÷ 7 followers", Reference: "2.45",
			Over: Pick{"kv.aurora.followers", "followers-2", ""}, Under: Pick{"kv.aurora.followers", "followers-7", ""},
			Best: "seven followers are beyond their aim",
			AtBest: func(_ *bench.Result, _ bench.Durability, under float64) bool {
				return under >= aimOf(followerCells(), 7)
			},
			Bands: []Band{
				{Max: followerSlope, Status: bench.Healthy, Cause: "no steeper than the reference"},
				{Max: followerSlope * 1.5, Status: bench.Notable, Cause: "steeper than the reference", Next: run + "kv.aurora.followers"},
				{Status: bench.Suspicious, Cause: "far steeper than the reference", Next: run + "kv.aurora.followers"},
			},
		},
		{
			Name: "KV CPU per put and replica, 7 ÷ 2 followers",
			Over: Pick{"kv.aurora.followers", "followers-7", replicaCPU}, Under: Pick{"kv.aurora.followers", "followers-2", replicaCPU},
			Bands: []Band{
				{Max: replicaGrowth, Status: bench.Healthy, Cause: "another replica costs what each costs"},
				{Status: bench.Suspicious, Cause: "replicas cost more the more there are", Next: run + "kv.aurora.followers"},
			},
		},
		{
			Name: "KV 4 shards ÷ 1, stream",
			Over: Pick{"kv.aurora.len", "value-64-shards-4", ""}, Under: Pick{"kv.aurora.len", "value-64", ""},
			Bands: []Band{
				{Min: 2.5, Status: bench.Healthy, Cause: "shards add up"},
				{Min: 0.9, Status: bench.Flat, Cause: "CPU saturated, which is normal on 2 cores", Next: run + "'kv.aurora.len/value-64*'"},
				{Status: bench.Inverted, Cause: "shards get in each other's way", Next: run + "kv.aurora.len/value-64-shards-4"},
			},
		},
		{
			Name: "KV put ÷ ping-pong ceiling", Reference: "0.91", UnderAny: true,
			Over: Pick{"kv.pingpong", "nodes", ""}, Under: Pick{"kv.pingpong", "grpc", ""},
			Bands: []Band{
				{Min: 0.91, Status: bench.Healthy, Cause: "log and store cost less than the network"},
				{Min: 0.5, Status: bench.Notable, Cause: "log or store outweigh the network", Next: run + "kv.latency"},
				{Status: bench.Suspicious, Cause: "log or store are the wall", Next: run + "kv.latency"},
			},
		},
		{
			Name: "KV stream ÷ ping-pong ceiling", UnderAny: true,
			Over: Pick{"kv.aurora.len", "value-64", ""}, Under: Pick{"kv.pingpong", "grpc", ""},
			Bands: []Band{
				{Min: 3, Status: bench.Healthy, Cause: "frames spare a call per put"},
				{Min: 2.5, Status: bench.Healthy, Cause: "frames spare most of a call per put"},
				{Min: 1, Status: bench.Notable, Cause: "frames spare little", Next: run + "kv.aurora.len/value-64"},
				{Status: bench.Suspicious, Cause: "a stream is no faster than a relay by calls", Next: run + "kv.aurora.len/value-64"},
			},
		},
	}
}

// aimOf is the aim of a cell, in puts a second; infinite for an n that is not a cell. A slope is
// compared with the reference's only where its slower side misses the aim, because a fast short
// side makes a slope as steep as a slow long one does.
func aimOf(cells []auroraCell, n int) float64 {
	for _, c := range cells {
		if c.n == n {
			return auroraAim * c.chart * 1000
		}
	}
	return math.Inf(1)
}

// rowOf returns a row under a durability, or nil.
func rowOf(r *bench.Result, suite, row string, d bench.Durability) *bench.Row {
	for i := range r.Suites {
		if s := &r.Suites[i]; s.Suite == suite && s.Row == row && s.Label.Durability == d {
			return s
		}
	}
	return nil
}
