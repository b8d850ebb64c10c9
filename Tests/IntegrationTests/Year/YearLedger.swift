/// What the users of a year did, written down without the server's code. Times are milliseconds since 1970.
struct YearLedger {
    struct Person {
        var id: String
        let firstWeek: Int
        /// The variation that the person was given first, by experiment.
        var assigned: [String: String] = [:]
        /// The first exposure, by experiment or holdout.
        var exposures: [String: (variation: String, time: Int64)] = [:]
        /// Those in which the person has met several variations.
        var crossed: Set<String> = []
        var purchases: [(id: String, time: Int64, value: Int)] = []
    }

    struct Total: Equatable {
        var users = 0
        var crossed = 0
        var events = 0
        var converted = 0
        var value = 0
    }

    private(set) var people: [String: Person] = [:]
    private(set) var erased = 0
    private(set) var merged = 0

    mutating func add(_ person: Person) { people[person.id] = person }

    /// Returns what the person had been given before, and notes the variation if that was nothing.
    mutating func assign(_ variation: String?, in experiment: String, to id: String) -> String? {
        let former = people[id]?.assigned[experiment]
        if former == nil, let variation { people[id]?.assigned[experiment] = variation }
        return former
    }

    mutating func expose(_ id: String, to variation: String, in experiment: String, at time: Int64) {
        let known = people[id]?.exposures[experiment]
        if let known, known.variation != variation { people[id]?.crossed.insert(experiment) }
        if known.map({ time < $0.time }) ?? true { people[id]?.exposures[experiment] = (variation, time) }
    }

    mutating func purchase(_ event: (id: String, time: Int64, value: Int), by id: String) {
        guard people[id]?.purchases.contains(where: { $0.id == event.id }) == false else { return }
        people[id]?.purchases.append(event)
    }

    mutating func erase(_ id: String) {
        people[id] = nil
        erased += 1
    }

    /// An anonymous person becomes an account of whom nothing is known.
    mutating func logIn(_ anonymousID: String, as account: String) {
        guard var person = people.removeValue(forKey: anonymousID) else { return }
        person.id = account
        people[account] = person
        merged += 1
    }

    /// Counts anew, by variation: users exposed to it, and what those bought since who met no other.
    ///
    /// - Parameters:
    ///   - window: how long after the exposure, in milliseconds.
    ///   - cap: the maximum value of one user.
    func totals(
        of experiment: String, _ variations: [String] = ["a", "b"], window: Int64 = .max, cap: Int = .max
    ) -> [String: Total] {
        var totals = Dictionary(uniqueKeysWithValues: variations.map { ($0, Total()) })
        for person in people.values {
            guard let exposure = person.exposures[experiment] else { continue }
            guard !person.crossed.contains(experiment) else {
                totals[exposure.variation, default: Total()].crossed += 1
                continue
            }
            let since = person.purchases.filter { $0.time >= exposure.time && $0.time - exposure.time < window }
            totals[exposure.variation, default: Total()].add(since.map(\.value), cap: cap)
        }
        return totals
    }
}

extension YearLedger.Total {
    fileprivate mutating func add(_ values: [Int], cap: Int) {
        users += 1
        events += values.count
        converted += values.isEmpty ? 0 : 1
        value += min(values.reduce(0, +), cap)
    }
}
