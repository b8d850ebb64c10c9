import Bucketing
import JSON

// How an experiment is read from a datafile and written to one.
//
// In the datafile, an experiment has the members that SDKs know, and an annotation (``Annotations/member``). The
// members describe what SDKs do now: while enrollment is closed, `trafficAllocation` is empty. The annotation keeps the
// rest, such as the allocation that applies once enrollment is open again.

extension ExperimentDefinition {
    /// Reads an experiment from a datafile.
    ///
    /// - Parameters:
    ///   - groupID: the group that has the experiment; `nil` for none.
    ///   - audiences: the conditions of the datafile's audiences, by id.
    ///   - details: the stored ``ExperimentDetails``, which SDKs do not get; `nil` for none.
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
        gate = Self.gate(of: source, annotations)
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

    /// Returns the percentage of users whom a contextual bandit (`cmab`) admits; `nil` if the experiment is none. The
    /// datafile has hundredths of a percent.
    private static func gate(of source: JSONObject, _ annotations: ExperimentAnnotations) -> Double? {
        guard let bandit = source["cmab"]?.object, !bandit.isEmpty else { return nil }
        return annotations.gate ?? (bandit["trafficAllocation"]?.double).map { $0 / 100 }
    }

    /// The parts of the datafile's experiment that its flag determines.
    struct Setting {
        /// Whether the flag is off, so that a running experiment is paused.
        var isPaused = false
        /// Adds the members `featureEnabled` and `variables` to a variation.
        var addValues: (inout JSONObject, Variation) -> Void = { _, _ in }
    }

    /// Writes the experiment in the format of a datafile, and keeps it as the source that the next change starts from.
    mutating func write(_ setting: Setting) {
        source = json(setting)
        for (index, variation) in source.objects("variations").enumerated() { variations[index].source = variation }
    }

    /// Returns the experiment in the format of a datafile, which SDKs read.
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
        object["variations"] = .array(variations.map { json(of: $0, setting) })
        object["trafficAllocation"] = enrollsNobody ? [] : allocation.json
        object["cmab"] = gate.map { banditJSON(gate: $0) }
        let retired = retiredVariations.map { ["id": JSONValue($0.id), "key": JSONValue($0.key)] as JSONValue }
        object["retiredVariations"] = retired.isEmpty ? nil : .array(retired)
        let annotations = annotations
        object[Annotations.member] = annotations.isEmpty ? nil : .object(annotations)
        return object
    }

    /// Whether the datafile's experiment has no traffic, so that no SDK enrolls anybody.
    private var enrollsNobody: Bool { isClosed || isDraft }

    private func json(of variation: Variation, _ setting: Setting) -> JSONValue {
        var object = variation.source
        object["id"] = JSONValue(variation.id)
        object["key"] = JSONValue(variation.key)
        if object["weight"]?.double != variation.weight {
            object["weight"] = variation.weight.map { .shortest($0) }
        }
        setting.addValues(&object, variation)
        return .object(object)
    }

    private func banditJSON(gate: Double) -> JSONValue {
        var bandit = source["cmab"]?.object ?? JSONObject()
        bandit["attributeIds"] = bandit["attributeIds"] ?? []
        bandit["trafficAllocation"] = .integer(enrollsNobody ? 0 : Int64((gate * 100).rounded()))
        return .object(bandit)
    }

    /// The annotation with everything that the members for SDKs do not show.
    private var annotations: JSONObject {
        var annotations = source[Annotations.member]?.object ?? JSONObject()
        annotations["enrollment"] = isClosed ? "closed" : nil
        annotations["trafficAllocation"] = enrollsNobody ? Optional(allocation.json) : nil
        annotations["gate"] = enrollsNobody ? gate.map { .shortest($0) } : nil
        annotations["status"] = isDraft ? "draft" : nil
        annotations["conclusion"] = conclusion?.annotation
        annotations["traffic"] = traffic.map { .shortest($0) }
        annotations["audience"] = GivenAudience.annotation(audience)
        annotations["flag"] = flagKey.map { JSONValue($0) }
        annotations["served"] = isServed.map { .bool($0) }
        annotations[AssignmentLifetime.member] = assignmentLifetime.map { .string($0.text) }
        annotations["neverRan"] = hasNeverRun ? true : nil
        return annotations
    }
}
