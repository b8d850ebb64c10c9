import Bucketing
import JSON

/// The rules of ``SeriesDefinition/Covariate/attribute(_:)``: the number that an attribute has at the first exposure is
/// stored as the value before the exposure. The attribute in the request that caused the exposure counts, or else the
/// stored attribute, as in ``BreakdownRules``.
enum CovariateRules {
    /// Returns the covariates of the user, by the names of the series.
    ///
    /// - Parameter exposure: the first exposure. `records` must have the series of its experiment.
    /// - Returns: `nil` if `records` lacks a part that is needed.
    static func covariates(at exposure: Exposure, in records: inout UserRecords) -> [Identifier: UserGoal]? {
        // The series whose covariate is an attribute.
        let adjusted = records.series(of: exposure.experimentID).filter { $0.covariateAttribute != nil }
        guard !adjusted.isEmpty else { return [:] }
        let given = exposure.givenAttributes
        // Those whose attribute is not in the request.
        let rest = adjusted.filter { $0.covariateAttribute.map { !given.has($0) } ?? false }
        guard rest.isEmpty || records.has([.attributes, .definedAttributes]) else { return nil }
        var covariates = totals(adjusted) { given[$0.string]?.double }
        covariates.merge(totals(rest) { number(of: $0, records) }) { first, _ in first }
        return covariates
    }

    /// Returns the covariates that follow from the attributes of the request that caused the exposure.
    static func given(_ exposure: Exposure, _ series: [TrackedSeries]) -> [Identifier: UserGoal] {
        guard series.contains(where: { $0.covariateAttribute != nil }) else { return [:] }
        let given = exposure.givenAttributes
        return totals(series) { given[$0.string]?.double }
    }

    private static func totals(
        _ series: [TrackedSeries], _ value: (Identifier) -> Double?
    ) -> [Identifier: UserGoal] {
        var totals: [Identifier: UserGoal] = [:]
        for series in series {
            guard let number = series.covariateAttribute.flatMap(value), EventRules.isUsable(value: number) else {
                continue
            }
            totals[series.names[0]] = UserGoal(beforeCount: 1, beforeValue: number)
        }
        return totals
    }

    private static func number(of attribute: Identifier, _ records: UserRecords) -> Double? {
        guard case .number(let number) = records.storedValue(of: attribute) else { return nil }
        return number
    }
}

extension Exposure {
    /// The attributes of the request that caused the exposure.
    var givenAttributes: JSONObject {
        (try? JSONParser().parse(payload))?.object?["attributes"]?.object ?? JSONObject()
    }
}

extension JSONObject {
    /// Whether an attribute has a value.
    func has(_ attribute: Identifier) -> Bool { self[attribute.string].map { !$0.isNull } ?? false }
}
