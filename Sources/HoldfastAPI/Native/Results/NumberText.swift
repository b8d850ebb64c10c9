import Glibc

/// Formats numbers for charts and reports.
enum NumberText {
    /// Formats a share as a percentage with its sign, such as `+1.5%`.
    static func percent(_ share: Double) -> String {
        sign(of: share) + decimal(abs(share) * 100, places: 1) + "%"
    }

    /// Returns the sign of a number: `+`, the minus sign, or nothing for 0.
    static func sign(of number: Double) -> String {
        if number > 0 { return "+" }
        return number < 0 ? "−" : ""
    }

    /// Formats a number in decimals, rounded so that no digits of a binary fraction show.
    ///
    /// - Parameters:
    ///   - places: the number of decimals.
    ///   - trimmed: whether zeros at the end are left out.
    static func decimal(_ number: Double, places: Int, trimmed: Bool = false) -> String {
        let scale = pow(10, Double(places))
        // A greater number has no such decimals as a `Double`, or would overflow `Int64`.
        guard number.isFinite, abs(number) * scale < 1e15 else { return number.description }
        let scaled = Int64((abs(number) * scale).rounded())
        let digits = String(scaled % Int64(scale))
        var fraction = String(repeating: "0", count: max(0, places - digits.count)) + digits
        if trimmed { while fraction.last == "0" { fraction.removeLast() } }
        let whole = (number < 0 && scaled != 0 ? "-" : "") + String(scaled / Int64(scale))
        return places == 0 || fraction.isEmpty ? whole : whole + "." + fraction
    }

    /// Formats a number with about four significant digits.
    static func significant(_ number: Double) -> String {
        guard number != 0, number.isFinite else { return number == 0 ? "0" : "unknown" }
        // The number of digits before the decimal point determines how many decimals remain; at most eight.
        return decimal(number, places: min(8, max(0, 3 - Int(floor(log10(abs(number)))))), trimmed: true)
    }

    /// Formats a number with its unit, such as `12.30 EUR`.
    static func amount(_ number: Double, in unit: String) -> String {
        guard !unit.isEmpty else { return significant(number) }
        let isCurrency =
            unit.utf8.count == 3 && unit.utf8.allSatisfy { (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains($0) }
        // Amounts have two decimals, except in currencies whose cents are not used. Amounts below 1 need more decimals,
        // and cents do not matter in amounts from 100000 on.
        let isMoney = isCurrency && abs(number) >= 1 && abs(number) < 100_000 && !withoutCents.contains(unit)
        return (isMoney ? decimal(number, places: 2) : significant(number)) + "\u{a0}" + unit
    }

    /// The currencies whose amounts have no decimals.
    private static let withoutCents: Set<String> = [
        "BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "VND", "VUV", "XAF", "XOF", "XPF",
    ]
}
