#!/usr/bin/env bash
# Measures which code is hot, for the next build: cmd/millrace/hot.pgo, by which `make build` lets the compiler optimise.
# It takes four minutes. The profile need not be made again for each change: what moved or is new is compiled as without it.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -trimpath -pgo=off -o "$bin/millrace" ./cmd/millrace
# What users run: tasks one by one and in batches, on one node and three, over streams and REST; keys and searches.
for row in queue.cycle/unbatched queue.cycle/batch-32-8 queue.raft/shards-1 queue.smart/shards-1 queue.effects/kv-put queue.keyed/keys-10k \
	raft.entry/put kv.aurora.followers/followers-2 queue.transport/rest search.sweep/clients-100 search.sweep/ungated-50; do
	"$bin/millrace" bench run "$row" --durability=none --runs=1 --warm-up=1s --window=5s --out="$bin/out/$row" >"$bin/log" 2>&1 || {
		# A missed target ends a run with an error; the profile is there all the same.
		[ -n "$(find "$bin/out/$row" -name cpu.pb.gz)" ] || { cat "$bin/log"; exit 1; }
	}
	echo "$row: $(find "$bin/out/$row" -name cpu.pb.gz | wc -l) profiles"
done
go run ./bench/profile/hotpaths -o cmd/millrace/hot.pgo "$bin/out"
ls -l cmd/millrace/hot.pgo
