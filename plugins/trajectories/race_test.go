//go:build race

package trajectories

// raceDetector: memory is several times what it is without.
const raceDetector = true
