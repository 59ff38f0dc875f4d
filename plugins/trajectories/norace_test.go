//go:build !race

package trajectories

const raceDetector = false
