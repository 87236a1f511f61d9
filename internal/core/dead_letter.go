package core

import "encoding/binary"

// Headers of a copy that was made of a task when it died. Those that a copy had itself make room for those of its own death.
const (
	HeaderDead       = "millrace-dead-"
	HeaderDeadTask   = HeaderDead + "task"
	HeaderDeadQueue  = HeaderDead + "queue"
	HeaderDeadReason = HeaderDead + "reason"
	HeaderDeadError  = HeaderDead + "error"
)

// DeadLetterID returns the id of the copy of a task that dies after that many redrives. It has the time and the partition of the task's
// own id, so that it follows from the task alone.
func DeadLetterID(id TaskID, redrives uint32) TaskID {
	a, b := binary.BigEndian.Uint64(id[:8]), binary.BigEndian.Uint64(id[8:])
	h := mix(mix(mix(a)^b) ^ uint64(redrives+1))
	var random [9]byte
	binary.BigEndian.PutUint64(random[:8], h)
	random[8] = byte(mix(h)) & 0x0f
	return NewTaskID(id.Millis(), id.Partition(), random)
}

// mix spreads the bits of n over all of the result, one to one: the finalizer of splitmix64.
func mix(n uint64) uint64 {
	n += 0x9e3779b97f4a7c15
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return n ^ n>>31
}
