package rules

import "math"

// earthKilometres is the mean radius of the Earth (IUGG).
const earthKilometres = 6371.0088

// ValidPlace says whether p is a latitude of −90 to 90 and a longitude of −180 to 180 degrees.
func ValidPlace(p [2]float64) bool {
	return math.Abs(p[0]) <= 90 && math.Abs(p[1]) <= 180
}

// Kilometres returns the great-circle distance of two places given in degrees, by the haversine formula.
func Kilometres(a, b [2]float64) float64 {
	const rad = math.Pi / 180
	dLat, dLon := (b[0]-a[0])*rad/2, (b[1]-a[1])*rad/2
	s, t := math.Sin(dLat), math.Sin(dLon)
	h := s*s + math.Cos(a[0]*rad)*math.Cos(b[0]*rad)*t*t
	return 2 * earthKilometres * math.Asin(math.Sqrt(min(1, h)))
}

// further says whether two valid places are further apart than a limit in kilometres, where that follows of bounds of the haversine formula
// that take one cosine. known is false near the limit, and for places and limits for which the bounds do not hold or are too wide.
func further(a, b [2]float64, limit float64) (further, known bool) {
	const (
		rad    = math.Pi / 180
		widest = 0.25 // of half a difference, and of half an angle, in radians
		margin = 1e-9 // covers what the formula and the bounds round
	)
	dLat, dLon, half := (b[0]-a[0])*rad/2, (b[1]-a[1])*rad/2, limit/(2*earthKilometres)
	if math.Abs(dLat) > widest || math.Abs(dLon) > widest || !(half > 0 && half <= widest) {
		return false, false
	}
	// The square of the sine of x lies between x²-x⁴/3 and x². The product of two cosines is half the sum of those of the difference and
	// of the sum, and the former is 1 less twice the square of the sine of half of it.
	lat, lon, most := dLat*dLat, dLon*dLon, half*half
	latLeast, lonLeast := lat*(1-lat/3), lon*(1-lon/3)
	sum := 1 + math.Cos((a[0]+b[0])*rad)
	least, greatest := sum/2-lat, sum/2-latLeast
	if least < 1e-4 { // near a pole the difference has few digits
		return false, false
	}
	if latLeast+least*lonLeast > most*(1+margin) {
		return true, true
	}
	return false, lat+greatest*lon < most*(1-most/3)*(1-margin)
}

// beyond says whether two valid places are further apart than a limit by their latitudes alone, which needs no trigonometry. No
// distance is shorter than the one between the circles of latitude; a millionth off covers what the formula rounds.
func beyond(a, b [2]float64, limit float64) bool {
	const perDegree = earthKilometres * math.Pi / 180
	return math.Abs(a[0]-b[0])*perDegree*(1-1e-6) > limit
}
