//! Distributions of test statistics: normal, Student's t, Mann and Whitney's U.

/// Returns the probability that a standard normal variable is at most `z`; relative error below 1e-7.
pub(super) fn normal_cdf(z: f64) -> f64 {
    0.5 * complementary_error(-z / std::f64::consts::SQRT_2)
}

/// Complementary error function, by a Chebyshev fit.
fn complementary_error(x: f64) -> f64 {
    const COEFFICIENTS: [f64; 10] = [
        -1.265_512_23,
        1.000_023_68,
        0.374_091_96,
        0.096_784_18,
        -0.186_288_06,
        0.278_868_07,
        -1.135_203_98,
        1.488_515_87,
        -0.822_152_23,
        0.170_872_77,
    ];
    let t = 1.0 / (1.0 + 0.5 * x.abs());
    let sum = COEFFICIENTS.iter().rev().fold(0.0, |sum, c| sum * t + c);
    let tail = t * (-x * x + sum).exp();
    if x >= 0.0 { tail } else { 2.0 - tail }
}

/// Returns the value below which a standard normal variable lies with probability `p`.
pub(super) fn normal_quantile(p: f64) -> f64 {
    bisect(p, normal_cdf)
}

/// Returns the value below which Student's t with `freedom` degrees of freedom lies with probability `p`.
pub(super) fn student_quantile(p: f64, freedom: f64) -> f64 {
    bisect(p, |t| {
        let outside = student_two_sided(t, freedom) / 2.0;
        if t > 0.0 { 1.0 - outside } else { outside }
    })
}

/// Inverts a distribution function.
fn bisect(p: f64, cdf: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (-1e4, 1e4);
    for _ in 0..120 {
        let middle = f64::midpoint(low, high);
        if cdf(middle) < p {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

/// Returns the probability that Student's t with `freedom` degrees of freedom is at least as far from zero as `t`.
pub(super) fn student_two_sided(t: f64, freedom: f64) -> f64 {
    incomplete_beta(freedom / (freedom + t * t), freedom / 2.0, 0.5)
}

/// Regularized incomplete beta function, by its continued fraction.
#[allow(clippy::many_single_char_names, reason = "the names of the formula")]
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    const TINY: f64 = 1e-300;
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(1.0 - x, b, a);
    }
    let front = (a * x.ln() + b * (1.0 - x).ln() + log_gamma(a + b) - log_gamma(a) - log_gamma(b))
        .exp()
        / a;
    let whole = |value: f64| if value.abs() < TINY { TINY } else { value };
    let (mut c, mut d) = (1.0, 1.0 / whole(1.0 - (a + b) * x / (a + 1.0)));
    let mut fraction = d;
    for step in 1..300 {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let before = fraction;
        for term in [even, odd] {
            d = 1.0 / whole(1.0 + term * d);
            c = whole(1.0 + term / c);
            fraction *= c * d;
        }
        if (fraction - before).abs() < 1e-14 * fraction.abs() {
            break;
        }
    }
    front * fraction
}

/// Logarithm of the gamma function for positive numbers, by Lanczos.
fn log_gamma(x: f64) -> f64 {
    const COEFFICIENTS: [f64; 6] = [
        76.180_091_729_471_46,
        -86.505_320_329_416_77,
        24.014_098_240_830_91,
        -1.231_739_572_450_155,
        0.120_865_097_386_617_9e-2,
        -0.539_523_938_495_3e-5,
    ];
    let base = x + 5.5;
    let front = base - (x + 0.5) * base.ln();
    let mut sum = 1.000_000_000_190_015;
    let mut at = x;
    for coefficient in COEFFICIENTS {
        at += 1.0;
        sum += coefficient / at;
    }
    -front + (2.506_628_274_631_000_5 * sum / x).ln()
}

/// Returns the probabilities of the values 0 to `n m` of Mann and Whitney's U without ties. For at most 20 samples a
/// side: the counts are exact in `f64`.
pub(super) fn u_distribution(n: usize, m: usize) -> Vec<f64> {
    // Gaussian binomial coefficient: product over i of (1 - x^(m+i)) / (1 - x^i).
    let mut ways = vec![0.0; n * m + 1];
    ways[0] = 1.0;
    for i in 1..=n {
        for at in (m + i..ways.len()).rev() {
            ways[at] -= ways[at - m - i];
        }
        for at in i..ways.len() {
            ways[at] += ways[at - i];
        }
    }
    let all: f64 = ways.iter().sum();
    ways.iter().map(|count| count / all).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-6, "{found} {expected}");
    }

    #[test]
    fn normal_distribution_has_its_known_values() {
        is_near(normal_cdf(0.0), 0.5);
        is_near(normal_cdf(-1.959_964), 0.025);
        is_near(normal_quantile(0.975), 1.959_964);
        is_near(normal_quantile(0.8), 0.841_621);
    }

    #[test]
    fn students_t_has_its_known_values() {
        is_near(student_quantile(0.975, 4.0), 2.776_445);
        is_near(student_quantile(0.975, 30.0), 2.042_272);
        is_near(student_two_sided(2.0, 10.0), 0.073_388);
    }

    #[test]
    fn u_of_six_and_six_has_924_arrangements() {
        let shares = u_distribution(6, 6);
        assert_eq!(shares.len(), 37);
        is_near(shares[0] * 924.0, 1.0);
        is_near(shares[2] * 924.0, 2.0);
        is_near(shares.iter().sum(), 1.0);
        is_near(u_distribution(20, 20).iter().sum(), 1.0);
    }
}
