import Bucketing
import JSON

/// The rules of ``SeriesDefinition/Covariate/attribute(_:)``: the number that an attribute has at the first exposure is
/// stored as the value before the exposure. The attribute in the request that caused the exposure counts. If the
/// request lacks it, the stored attribute counts, as in ``BreakdownRules``.
enum CovariateRules {
    /// Returns the covariates of the user, by the names of the series.
    ///
    /// - Parameter exposure: the first exposure. `records` must have the series of its experiment.
    /// - Returns: `nil` if `records` lacks a part that is needed.
    static func covariates(at exposure: Exposure, in records: inout UserRecords) -> [Identifier: UserGoal]? {
        let withCovariate = records.series(of: exposure.experimentID).filter { $0.covariateAttribute != nil }
        guard !withCovariate.isEmpty else { return [:] }
        let given = exposure.givenAttributes
        let notGiven = withCovariate.filter { series in series.covariateAttribute.map { !given.has($0) } ?? false }
        guard notGiven.isEmpty || records.has([.attributes, .definedAttributes]) else { return nil }
        var covariates = totals(withCovariate) { given[$0.string]?.double }
        covariates.merge(totals(notGiven) { number(of: $0, records) }) { first, _ in first }
        return covariates
    }

    /// Returns the covariates that the request of an exposure gives, by the names of the series.
    static func given(_ exposure: Exposure, _ series: [TrackedSeries]) -> [Identifier: UserGoal] {
        guard series.contains(where: { $0.covariateAttribute != nil }) else { return [:] }
        let given = exposure.givenAttributes
        return totals(series) { given[$0.string]?.double }
    }

    /// Returns the totals that keep covariates, by the names of the series.
    ///
    /// - Parameter value: returns the number that an attribute has; `nil` if there is none.
    private static func totals(
        _ series: [TrackedSeries], _ value: (Identifier) -> Double?
    ) -> [Identifier: UserGoal] {
        var totals: [Identifier: UserGoal] = [:]
        for series in series {
            guard let number = series.covariateAttribute.flatMap(value), EventRules.isUsable(value: number) else {
                continue
            }
            // Only a sum has a covariate, and a sum has one name.
            totals[series.names[0]] = UserGoal(beforeCount: 1, beforeValue: number)
        }
        return totals
    }

    /// Returns the stored number of an attribute; `nil` if there is none.
    private static func number(of attribute: Identifier, _ records: UserRecords) -> Double? {
        guard case .number(let number) = records.storedValue(of: attribute) else { return nil }
        return number
    }
}

extension Exposure {
    /// The attributes of the request that caused the exposure, from its payload; empty if there are none.
    var givenAttributes: JSONObject {
        (try? JSONParser().parse(payload))?.object?["attributes"]?.object ?? JSONObject()
    }
}

extension JSONObject {
    /// Whether an attribute has a value other than `null`.
    func has(_ attribute: Identifier) -> Bool { self[attribute.string].map { !$0.isNull } ?? false }
}
