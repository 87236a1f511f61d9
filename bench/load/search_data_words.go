package load

// The words that made-up workers and orders are put together from.

// searchRole is one kind of work.
type searchRole struct {
	// id is the family and the kind of work with a point between.
	id string
	// names are the ways people write it, the full one first, a short one second.
	names []string
	// skills are sentences about the work, one of which stands in a worker's text.
	skills []string
}

// searchTrade is a family of roles with its mean pay per hour and its certificates.
type searchTrade struct {
	// family begins the ids of its roles.
	family string
	// pay is the mean pay per hour.
	pay float64
	// certs are the certificates that workers of the trade may have, by id.
	certs []string
	// roles are the kinds of work of the trade.
	roles []searchRole
}

// searchCity is a town with its latitude and longitude.
type searchCity struct {
	name string
	at   [2]float64
}

// searchCities are towns of one region, so that distances between them decide something.
var searchCities = []searchCity{
	{"Joliet", [2]float64{41.525, -88.081}},
	{"Aurora", [2]float64{41.760, -88.320}},
	{"Naperville", [2]float64{41.750, -88.153}},
	{"Elgin", [2]float64{42.037, -88.281}},
	{"Waukegan", [2]float64{42.363, -87.844}},
	{"Rockford", [2]float64{42.271, -89.094}},
	{"Gary", [2]float64{41.593, -87.346}},
	{"Hammond", [2]float64{41.583, -87.500}},
	{"Kankakee", [2]float64{41.120, -87.861}},
	{"Peoria", [2]float64{40.694, -89.589}},
	{"Kenosha", [2]float64{42.584, -87.821}},
	{"South Bend", [2]float64{41.676, -86.252}},
}

// searchShift is a time of work. names are the ways people write it.
type searchShift struct {
	// id is what payloads and rules call the shift.
	id    string
	names []string
}

// searchShifts are the shifts of a day.
var searchShifts = []searchShift{
	{"day", []string{"day shift", "1st shift", "days", "mornings"}},
	{"swing", []string{"second shift", "2nd shift", "swing", "afternoons"}},
	{"night", []string{"night shift", "3rd shift", "nights", "overnights"}},
}

// searchClients are the made-up companies that ask for workers.
var searchClients = []string{"acme", "birchwood", "calder", "dunmore", "eastgate", "fairlane", "granite", "harlow"}

// searchGeneralCerts are certificates that any trade may have.
var searchGeneralCerts = []string{"osha10", "osha30", "cpr", "drug_screen"}

// searchCertNames are the certificates as texts name them, by id.
var searchCertNames = map[string]string{
	"osha10": "OSHA 10", "osha30": "OSHA 30", "cpr": "CPR and first aid", "drug_screen": "clean drug screen",
	"aws_d1.1": "AWS D1.1", "aws_d1.2": "AWS D1.2", "asme_ix": "ASME IX", "journeyman": "journeyman electrician license",
	"nfpa70e": "NFPA 70E", "cdl_a": "CDL class A", "cdl_b": "CDL class B", "hazmat": "hazmat endorsement",
	"forklift": "forklift license", "reach": "reach truck license", "rn": "RN license", "acls": "ACLS", "cna": "CNA certificate",
	"servsafe": "ServSafe", "tips": "TIPS", "nims": "NIMS level 1", "gdt": "GD&T certificate", "epa608": "EPA 608",
	"plumber": "plumber license", "rigging": "rigging certificate", "comptia": "CompTIA A+", "ccna": "CCNA", "guard": "guard card",
}

// searchFields are the kinds of places that workers of a family have worked at.
var searchFields = map[string][]string{
	"welder":      {"structural steel", "pipe and pressure vessels", "trailer manufacturing", "shipbuilding"},
	"electrician": {"commercial buildings", "plant maintenance", "new homes", "switchgear"},
	"driver":      {"regional freight", "local delivery", "tank haulage", "flatbed hauling"},
	"warehouse":   {"e-commerce fulfilment", "cold storage", "food distribution", "auto parts"},
	"nurse":       {"a level one trauma center", "long-term care", "a community hospital", "home health"},
	"kitchen":     {"hotel banquets", "a school district", "fine dining", "hospital food service"},
	"machinist":   {"aerospace parts", "medical devices", "tool and die", "automotive fixtures"},
	"builder":     {"commercial concrete", "road works", "residential framing", "demolition"},
	"technician":  {"data centers", "office networks", "retail refrigeration", "hospital equipment"},
	"service":     {"event venues", "office buildings", "hospitals", "shopping centers"},
}

// searchTraits end the texts of workers and decide nothing.
var searchTraits = []string{
	"Reliable transport and own tools.", "Available on weekends and for overtime.", "Bilingual, English and Spanish.",
	"Prefers long assignments, open to travel.", "Trained new hires on the last two assignments.",
	"Perfect attendance on the last assignment.", "Looking for temp-to-hire.", "Can start within two days.",
}

// searchTrades are ten families of five roles each.
var searchTrades = []searchTrade{
	{"welder", 29, []string{"aws_d1.1", "aws_d1.2", "asme_ix"}, []searchRole{
		{"welder.mig", []string{"MIG welder", "mig", "GMAW welder"}, []string{"MIG and flux core on carbon steel", "Gas metal arc welding, reads weld symbols"}},
		{"welder.tig", []string{"TIG welder", "tig", "GTAW welder"}, []string{"TIG on stainless and aluminum", "Gas tungsten arc welding of thin sheet"}},
		{"welder.stick", []string{"stick welder", "smaw", "arc welder"}, []string{"Stick welding in all positions", "Shielded metal arc on heavy plate"}},
		{"welder.pipe", []string{"pipe welder", "pipe", "6G welder"}, []string{"6G pipe welding to code", "Open root on schedule 80 pipe"}},
		{"welder.fitter", []string{"welder fitter", "fitter", "fabricator"}, []string{"Layout and fit-up from drawings", "Fits and tacks assemblies from prints"}},
	}},
	{"electrician", 33, []string{"journeyman", "nfpa70e"}, []searchRole{
		{"electrician.journeyman", []string{"journeyman electrician", "journeyman", "JW electrician"}, []string{"Conduit bending and panel terminations", "Runs a small crew on commercial jobs"}},
		{"electrician.apprentice", []string{"apprentice electrician", "apprentice", "electrical helper"}, []string{"Third-year apprentice, pulls wire and mounts boxes", "Assists with rough-in and trim"}},
		{"electrician.industrial", []string{"industrial electrician", "plant electrician", "ind electrician"}, []string{"Motor controls, VFDs and PLC wiring", "Troubleshoots three-phase equipment"}},
		{"electrician.lowvolt", []string{"low voltage technician", "low volt", "cabling tech"}, []string{"Structured cabling and fire alarm", "Cat6 terminations and access control"}},
		{"electrician.solar", []string{"solar installer", "solar", "PV installer"}, []string{"Roof-mounted PV arrays", "Racking and inverter commissioning"}},
	}},
	{"driver", 27, []string{"cdl_a", "cdl_b", "hazmat"}, []searchRole{
		{"driver.cdl_a", []string{"CDL A driver", "class a driver", "tractor-trailer driver"}, []string{"Tractor-trailer, clean record", "Drop and hook, no-touch freight"}},
		{"driver.cdl_b", []string{"CDL B driver", "class b driver", "straight truck driver"}, []string{"Straight truck with lift gate", "Box truck routes with twenty stops"}},
		{"driver.delivery", []string{"delivery driver", "van driver", "courier"}, []string{"Sprinter van parcel routes", "Handheld scanner, 150 stops a day"}},
		{"driver.tanker", []string{"tanker driver", "tanker", "tank truck driver"}, []string{"Fuel deliveries with pump-off", "Liquid bulk and hose work"}},
		{"driver.yard", []string{"yard driver", "yard jockey", "hostler"}, []string{"Spots trailers with a yard truck", "Shuttles trailers between docks"}},
	}},
	{"warehouse", 20, []string{"forklift", "reach"}, []searchRole{
		{"warehouse.forklift", []string{"forklift operator", "forklift", "lift driver"}, []string{"Sit-down and stand-up forklift", "Loads and unloads trailers by forklift"}},
		{"warehouse.picker", []string{"order picker", "picker", "selector"}, []string{"Voice picking at 180 lines an hour", "RF scanner order selection"}},
		{"warehouse.packer", []string{"packer", "pack out", "packing associate"}, []string{"Packs and labels parcels", "Kitting and gift wrapping"}},
		{"warehouse.receiver", []string{"receiving clerk", "receiver", "dock clerk"}, []string{"Receives against purchase orders", "Counts, labels and puts away"}},
		{"warehouse.lead", []string{"warehouse lead", "lead", "shift lead"}, []string{"Leads a team of twelve", "Runs the outbound dock"}},
	}},
	{"nurse", 42, []string{"rn", "acls", "cna"}, []searchRole{
		{"nurse.icu", []string{"ICU nurse", "icu rn", "critical care nurse"}, []string{"Ventilators and vasoactive drips", "Two-to-one critical care"}},
		{"nurse.er", []string{"emergency nurse", "er rn", "ED nurse"}, []string{"Triage and trauma", "Fast-paced emergency department"}},
		{"nurse.medsurg", []string{"med-surg nurse", "med surg rn", "floor nurse"}, []string{"Five-to-one medical surgical floor", "Post-operative care and discharge"}},
		{"nurse.lpn", []string{"licensed practical nurse", "lpn", "LVN"}, []string{"Medication passes and wound care", "Skilled nursing charge LPN"}},
		{"nurse.aide", []string{"nursing assistant", "cna", "patient care tech"}, []string{"Activities of daily living and vitals", "Transfers with gait belt and lift"}},
	}},
	{"kitchen", 19, []string{"servsafe", "tips"}, []searchRole{
		{"kitchen.line", []string{"line cook", "line", "grill cook"}, []string{"Grill and saute stations", "High-volume line, 300 covers"}},
		{"kitchen.prep", []string{"prep cook", "prep", "kitchen prep"}, []string{"Knife work and batch sauces", "Prep lists and portioning"}},
		{"kitchen.dish", []string{"dishwasher", "dish", "steward"}, []string{"Machine dishwashing and pots", "Closing kitchen clean-down"}},
		{"kitchen.server", []string{"banquet server", "server", "waiter"}, []string{"Plated service for 500", "Tray service and wine"}},
		{"kitchen.bartender", []string{"bartender", "bar", "barkeep"}, []string{"Craft cocktails and cash handling", "Event bars and keg changes"}},
	}},
	{"machinist", 31, []string{"nims", "gdt"}, []searchRole{
		{"machinist.cnc_mill", []string{"CNC mill machinist", "cnc mill", "milling machinist"}, []string{"Sets up Haas three-axis mills", "Fanuc controls, offsets and probing"}},
		{"machinist.cnc_lathe", []string{"CNC lathe machinist", "cnc lathe", "turning machinist"}, []string{"Mazak turning centers with live tooling", "Holds tenths on turned parts"}},
		{"machinist.manual", []string{"manual machinist", "manual", "toolroom machinist"}, []string{"Bridgeport and engine lathe", "One-off repairs on manual machines"}},
		{"machinist.grinder", []string{"grinder operator", "grinder", "surface grinder"}, []string{"Surface and OD grinding", "Centerless grinding to microns"}},
		{"machinist.inspector", []string{"quality inspector", "qc inspector", "CMM operator"}, []string{"CMM programming and first articles", "Height gage, micrometers and GD&T"}},
	}},
	{"builder", 28, []string{"rigging", "osha30"}, []searchRole{
		{"builder.laborer", []string{"construction laborer", "laborer", "general labor"}, []string{"Site clean-up and material handling", "Jackhammer and demolition"}},
		{"builder.carpenter", []string{"carpenter", "framer", "finish carpenter"}, []string{"Framing and finish trim", "Doors, hardware and blocking"}},
		{"builder.concrete", []string{"concrete finisher", "concrete", "cement mason"}, []string{"Flatwork and power trowel", "Forms, pours and finishes slabs"}},
		{"builder.operator", []string{"equipment operator", "operator", "excavator operator"}, []string{"Excavator and skid steer", "Grade checking and trenching"}},
		{"builder.roofer", []string{"roofer", "roof", "shingler"}, []string{"TPO and shingle tear-off", "Torch-down and flashing"}},
	}},
	{"technician", 30, []string{"comptia", "ccna", "epa608"}, []searchRole{
		{"technician.hvac", []string{"HVAC technician", "hvac", "heating and cooling tech"}, []string{"Rooftop units and split systems", "Recovers and charges refrigerant"}},
		{"technician.desktop", []string{"desktop support technician", "desktop support", "help desk tech"}, []string{"Tickets, imaging and Active Directory", "Deploys laptops and printers"}},
		{"technician.network", []string{"network technician", "network tech", "switch tech"}, []string{"Racks switches and traces cabling", "VLANs and access points"}},
		{"technician.biomed", []string{"biomedical technician", "biomed", "BMET"}, []string{"Calibrates pumps and monitors", "Preventive maintenance of imaging equipment"}},
		{"technician.plumber", []string{"plumber", "plumbing tech", "pipefitter"}, []string{"Copper, PEX and drain lines", "Backflow and boiler piping"}},
	}},
	{"service", 18, []string{"guard", "cpr"}, []searchRole{
		{"service.guard", []string{"security guard", "guard", "security officer"}, []string{"Patrols, access control and reports", "Gate and lobby posts"}},
		{"service.janitor", []string{"janitor", "custodian", "cleaner"}, []string{"Floor care, strip and wax", "Night cleaning of offices"}},
		{"service.host", []string{"event host", "usher", "greeter"}, []string{"Ticket scanning and guest help", "Crowd flow at arenas"}},
		{"service.clerk", []string{"office clerk", "data entry clerk", "admin assistant"}, []string{"Data entry at 70 words a minute", "Phones, filing and Excel"}},
		{"service.mover", []string{"mover", "furniture mover", "moving helper"}, []string{"Residential and office moves", "Pads, dollies and truck loading"}},
	}},
}
