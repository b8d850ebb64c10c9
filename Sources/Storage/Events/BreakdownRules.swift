import Bucketing
import JSON

/// The rules of breakdowns, which determine the group of a user in each breakdown of an experiment.
///
/// The value of the attribute at the first exposure decides: the value in the payload of the exposure, which comes from
/// the request, or else the stored value. The first ``BreakdownGroup/limit`` values that occur get a group of their
/// own; later ones share the group ``BreakdownGroup/other``. A group is created in the transaction of the exposure, so
/// that all servers agree.
enum BreakdownRules {
    /// A value of an attribute, as far as groups distinguish values.
    private enum Value {
        case text(String)
        /// A value without a text form, which belongs to the group of other values.
        case unusable
    }

    /// Returns the user's groups, and creates groups for new values.
    ///
    /// - Parameter exposure: the first exposure. `records` must have the series of its experiment.
    /// - Returns: `nil` if `records` lacks a part that is needed; nothing has changed then.
    static func groups(of exposure: Exposure, in records: inout UserRecords) -> [BreakdownGroup]? {
        let breakdowns = records.series(of: exposure.experimentID).compactMap { series in
            series.breakdown.map { (series: series, attribute: $0) }
        }
        guard !breakdowns.isEmpty else { return [] }
        let given = exposure.givenAttributes
        let isComplete = breakdowns.allSatisfy { given.has($0.attribute) }
        guard isComplete || records.has([.attributes, .definedAttributes]) else { return nil }
        return breakdowns.map { series, attribute in
            let value = given[attribute.string].flatMap { self.value($0) } ?? stored(attribute, records)
            return BreakdownGroup(series: series.number, index: index(of: value, series, &records))
        }
    }

    /// Returns the index of the group of a value, and creates the group if the value is new.
    private static func index(
        of value: Value?, _ series: TrackedSeries, _ records: inout UserRecords
    ) -> Int {
        guard let value else { return BreakdownGroup.none }
        guard case .text(let text) = value, text.utf8.count <= BreakdownGroup.valueLimit, !text.utf8.contains(0) else {
            return BreakdownGroup.other
        }
        if let known = series.groupValues.firstIndex(of: Identifier(text)) { return known + 1 }
        guard series.groupValues.count < BreakdownGroup.limit else { return BreakdownGroup.other }
        var series = series
        series.groupValues.append(Identifier(text))
        records.put(series)
        return series.groupValues.count
    }

    /// The stored value of an attribute; `nil` if there is none.
    private static func stored(_ attribute: Identifier, _ records: UserRecords) -> Value? {
        switch records.storedValue(of: attribute) {
        case .bool(let value): return .text("\(value)")
        case .number(let value): return self.value(.number(value))
        case .text(let value), .moment(let value): return .text(value.string)
        case .selection(let values): return .text(values.map(\.string).joined(separator: ", "))
        case nil: return nil
        }
    }

    /// The value of an attribute in a request; `nil` for `null`.
    private static func value(_ json: JSONValue) -> Value? {
        switch json {
        case .null: return nil
        case .bool(let value): return .text("\(value)")
        case .integer, .number:
            let number = json.double.map { JSONValue.shortest($0) } ?? json
            return .text(String(decoding: number.encoded(), as: UTF8.self))
        case .string(let text): return .text(text)
        case .array(let elements):
            let texts = elements.compactMap(\.string)
            return texts.count == elements.count ? .text(texts.joined(separator: ", ")) : .unusable
        case .object: return .unusable
        }
    }
}

extension UserRecords {
    /// The value of an attribute; ``UserRecords/Part/attributes`` and ``UserRecords/Part/definedAttributes`` must have
    /// been read.
    func storedValue(of attribute: Identifier) -> AttributeValue? {
        guard let number = definedAttributes.first(where: { $0.value == attribute })?.key,
            case .present(let record) = attributes
        else { return nil }
        return record[number]
    }

    /// The keys of the totals that keep the user's groups in an experiment; the series of the experiment must have been
    /// read.
    func groupKeys(in experimentID: Identifier) -> [TotalKey] {
        series(of: experimentID).filter(\.hasGroups).flatMap(\.names)
            .map { TotalKey(experimentID: experimentID, goal: $0) }
    }

    /// The user's group by allocation period, if the experiment tracks such groups; its series must have been read.
    func periodGroups(in experimentID: Identifier, _ period: Int64) -> [BreakdownGroup] {
        series(of: experimentID).filter { $0.definition.content == .periods }
            .map { BreakdownGroup(series: $0.number, index: Int(clamping: period)) }
    }

    /// The user's groups in an experiment, as far as their totals have been read.
    func groups(in experimentID: Identifier) -> [BreakdownGroup] {
        totals.compactMap { key, total in
            key.experimentID == experimentID ? BreakdownGroup(key.goal, total) : nil
        }
    }
}
