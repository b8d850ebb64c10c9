package import Bucketing
package import JSON

/// An experiment of a project.
package struct ExperimentDefinition: KeyedDefinition {
    package struct Variation: Sendable, Equatable {
        package var id: Identifier
        package var key: Identifier
        /// Relative to the others; `nil` if none was given.
        package var weight: Double?
        /// The variation as the datafile has it.
        var source = JSONObject()
    }

    /// A variation that was removed. If it is added again, it has its former id.
    package struct RetiredVariation: Sendable, Equatable {
        package var id: Identifier
        package var key: Identifier
    }

    package let id: Identifier
    package var key: Identifier
    /// As a datafile has it: one of ``ExperimentStatus``, or another one that a datafile brought. While the experiment's
    /// flag is off, a running experiment is paused in the datafile.
    package var status = ExperimentStatus.running.rawValue
    package var variations: [Variation] = []
    package var retiredVariations: [RetiredVariation] = []
    /// Maps bucket values to variations. While enrollment is closed, this is the allocation that applies when it reopens.
    package var allocation = TrafficAllocation.empty
    package var isClosed = false
    /// The percentage of users whom a contextual bandit admits, for which SDKs ask this server; ``allocation`` splits those
    /// and has all bucket values. `nil` for any other experiment.
    package var gate: Double?
    package var groupID: Identifier?
    /// The percentage of all users who are enrolled, in an experiment of a named group.
    package var traffic: Double?
    /// Conditions as they were given, null for everybody; `nil` if a datafile brought others. Of a flag's rule, those
    /// that the datafile has.
    package var audience: JSONValue?
    /// The flag whose rule the experiment is, or was.
    package var flagKey: Identifier?
    /// Whether a flag with the experiment's key serves it; `nil` if the datafile does not say.
    var isServed: Bool?
    /// How long users keep their variation; `nil` to use the project's lifetime.
    package var assignmentLifetime: AssignmentLifetime?
    /// Whether the experiment is no longer a draft but has never run, so no user has an assignment yet.
    package var hasNeverRun = false
    @SharedPart package var details = ExperimentDetails()
    package var conclusion: Conclusion?
    /// The experiment as the datafile has it. Members that are not defined here stay.
    package var source = JSONObject()

    package var listKey: Identifier { key }
    package var names: [Identifier] { [id] }
    /// Whether it has results by metrics, or changes with time.
    package var isNotable: Bool { !details.metrics.isEmpty || isTimed }
    /// Whether its schedule, ramp or bandit still has something to do.
    var isTimed: Bool {
        details.schedule?.isPending ?? false || details.ramp?.isPending ?? false || details.bandit != nil
    }
    package var isArchived: Bool { status == ExperimentStatus.archived.rawValue }
    package var isDraft: Bool { status == ExperimentStatus.draft.rawValue }
    package var isConcluded: Bool { status == ExperimentStatus.concluded.rawValue }
    /// The variation that a concluded experiment delivers.
    package var winner: Variation? {
        isConcluded ? conclusion?.winner.flatMap { id in variations.last { $0.id == id } } : nil
    }
    /// The campaign.
    var layerID: Identifier { source.identifier("layerId") ?? id }
    /// The id of its own audience in the datafile.
    var audienceID: String { GivenAudience.id(of: id) }

    init(id: Identifier, key: Identifier) {
        self.id = id
        self.key = key
        audience = .null
    }

    /// - Parameters:
    ///   - audiences: the conditions of the datafile's audiences, by id.
    ///   - details: what the datafile has for Holdfast alone; `nil` if nothing.
    init(_ source: JSONObject, groupID: Identifier?, audiences: [Identifier: JSONValue], details: JSONObject?) {
        self.init(id: source.identifier("id") ?? "", key: source.identifier("key") ?? "")
        let members = source[Annotations.member]?.object
        let annotations = ExperimentAnnotations(members)
        status = annotations.isDraft ? ExperimentStatus.draft.rawValue : source["status"]?.string ?? ""
        variations = source.objects("variations").map { variation in
            Variation(
                id: variation.identifier("id") ?? "", key: variation.identifier("key") ?? "",
                weight: variation["weight"]?.double, source: variation)
        }
        retiredVariations = source.objects("retiredVariations").compactMap { variation in
            guard let id = variation.identifier("id"), let key = variation.identifier("key") else { return nil }
            return RetiredVariation(id: id, key: key)
        }
        isClosed = members?["enrollment"] == "closed"
        let shown = source["trafficAllocation"].flatMap { try? TrafficAllocation(json: $0) } ?? .empty
        let planned = annotations.isClosed ? annotations.allocation ?? shown : shown
        gate = (source["cmab"]?.object).flatMap { bandit in
            bandit.isEmpty ? nil : annotations.gate ?? (bandit["trafficAllocation"]?.double).map { $0 / 100 }
        }
        allocation =
            gate == nil ? planned : .dividing(variations.map(\.id), variations.compactMap(\.weight), like: planned)
        self.groupID = groupID
        traffic = members?["traffic"]?.double
        flagKey = members?.identifier("flag")
        isServed = members?["served"]?.bool
        assignmentLifetime = annotations.assignmentLifetime
        hasNeverRun = members?["neverRan"]?.bool ?? false
        audience = GivenAudience.read(source, given: members?["audience"], audiences[Identifier(audienceID)])
        self.details = details.map { ExperimentDetails($0) } ?? ExperimentDetails()
        conclusion = (members?["conclusion"]?.object).map { Conclusion($0, details?["conclusion"]?.object) }
        self.source = source
    }

    /// What the flag of an experiment adds to it in the datafile.
    struct Setting {
        var isPaused = false
        /// Gives a variation its state and its values.
        var addValues: (inout JSONObject, Variation) -> Void = { _, _ in }
    }

    /// Writes the experiment as SDKs know it, as if it had been read from the datafile.
    mutating func write(_ setting: Setting) {
        source = json(setting)
        for (index, variation) in source.objects("variations").enumerated() { variations[index].source = variation }
    }

    /// Returns the experiment as SDKs know it.
    ///
    /// While enrollment is closed, the allocation in the datafile is empty, so that no SDK enrolls anybody, and the
    /// annotations keep what it will be again.
    private func json(_ setting: Setting) -> JSONObject {
        var object = source
        object["id"] = JSONValue(id)
        object["key"] = JSONValue(key)
        object["layerId"] = JSONValue(layerID)
        if isDraft || status == ExperimentStatus.running.rawValue {
            object["status"] = setting.isPaused ? ExperimentStatus.paused.json : ExperimentStatus.running.json
        } else {
            object["status"] = .string(status)
        }
        object["forcedVariations"] = source["forcedVariations"] ?? [:]
        GivenAudience.write(audience, of: id, to: &object, replacing: source)
        object["variations"] = .array(
            variations.map { variation in
                var object = variation.source
                object["id"] = JSONValue(variation.id)
                object["key"] = JSONValue(variation.key)
                if object["weight"]?.double != variation.weight {
                    object["weight"] = variation.weight.map { .shortest($0) }
                }
                setting.addValues(&object, variation)
                return .object(object)
            })
        let isShut = isClosed || isDraft
        object["trafficAllocation"] = isShut ? [] : allocation.json
        object["cmab"] = gate.map { gate in
            var bandit = source["cmab"]?.object ?? JSONObject()
            bandit["attributeIds"] = bandit["attributeIds"] ?? []
            bandit["trafficAllocation"] = .integer(isShut ? 0 : Int64((gate * 100).rounded()))
            return .object(bandit)
        }
        let retired = retiredVariations.map { ["id": JSONValue($0.id), "key": JSONValue($0.key)] as JSONValue }
        object["retiredVariations"] = retired.isEmpty ? nil : .array(retired)
        var annotations = source[Annotations.member]?.object ?? JSONObject()
        annotations["enrollment"] = isClosed ? "closed" : nil
        annotations["trafficAllocation"] = isShut ? Optional(allocation.json) : nil
        annotations["gate"] = isShut ? gate.map { .shortest($0) } : nil
        annotations["status"] = isDraft ? "draft" : nil
        annotations["conclusion"] = conclusion?.annotation
        annotations["traffic"] = traffic.map { .shortest($0) }
        annotations["audience"] = GivenAudience.annotation(audience)
        annotations["flag"] = flagKey.map { JSONValue($0) }
        annotations["served"] = isServed.map { .bool($0) }
        annotations[AssignmentLifetime.member] = assignmentLifetime.map { .string($0.text) }
        annotations["neverRan"] = hasNeverRun ? true : nil
        object[Annotations.member] = annotations.isEmpty ? nil : .object(annotations)
        return object
    }
}

// MARK: - Traffic

extension TrafficAllocation {
    package static let empty = TrafficAllocation(ranges: [])
}

extension ExperimentDefinition {
    package var enrollment: ExperimentChange.Enrollment {
        get { isClosed ? .closed : .open }
        set { isClosed = newValue == .closed }
    }

    /// The percentage of users who are enrolled, also in a group.
    package var enrolledTraffic: Double { traffic ?? gate ?? split.traffic }

    package var split: VariationSplit {
        VariationSplit(
            ids: variations.map(\.id), given: variations.compactMap(\.weight), shares: allocation.shares)
    }

    /// Gives the experiment a percentage of users and divides them among its variations. As few bucket values as possible
    /// move to another variation.
    ///
    /// - Parameters:
    ///   - former: how users were divided; `nil` for a new experiment.
    ///   - dividesAnew: whether the variations or their weights have changed.
    ///   - isGrouped: whether it is in a named group, which admits the percentage.
    mutating func allocate(
        traffic percentage: Double, since former: VariationSplit?, dividesAnew: Bool = false, isGrouped: Bool
    ) {
        // A group, or a contextual bandit, admits a part of the users, which the experiment's own allocation only splits.
        let ownTraffic = isGrouped || gate != nil ? 100 : percentage
        if gate != nil { gate = isGrouped ? 100 : percentage }
        if dividesAnew || former?.traffic != ownTraffic {
            if !dividesAnew, let former {
                // The shares of little traffic, rounded to hundredths, would lose the weights.
                let weights = former.weights
                for index in variations.indices { variations[index].weight = weights[variations[index].id] ?? 0 }
            }
            let shares = allocation.shares
            let isGrown = !dividesAnew && ownTraffic >= former?.traffic ?? 0
            allocation = allocation.reallocated(
                to: TrafficAllocation.weights(
                    of: variations.map(\.id), ratio: variations.map { $0.weight ?? 1 }, traffic: ownTraffic,
                    atLeast: isGrown ? variations.map { shares[$0.id] ?? 0 } : nil))
        }
        traffic = isGrouped ? percentage : nil
    }
}
