"""P-BFGS and P-SGD for one vector of weights, in float64 NumPy."""

import numpy as np


class Oracle:
    """Takes steps, given functions of the weights and the batch."""

    def __init__(
        self,
        basis,
        rho=0.55,
        sigma=0.4,
        max_trials=10,
        alpha=0.0,
        gamma=0.9,
        residual_every=1,
        shard_basis=False,
    ):
        del shard_basis  # changes no result
        self.basis = np.asarray(basis, np.float64)
        self.rho, self.sigma, self.max_trials = rho, sigma, max_trials
        self.alpha, self.gamma, self.residual_every = alpha, gamma, residual_every
        k, n = self.basis.shape
        self.inverse_hessian = np.eye(k)
        self.last_gradient, self.last_step = np.zeros(k), np.zeros(k)
        self.momentum = np.zeros(n)
        self.trials = []

    def step(self, weights, loss_of, gradient_of, on_failure="reset"):
        """Returns the weights after one P-BFGS step."""
        gradient, loss = gradient_of(weights), loss_of(weights)
        inside = self.basis @ gradient
        s, y = self.last_step, inside - self.last_gradient
        if s @ y > 1e-3 * np.linalg.norm(s) * np.linalg.norm(y):
            turn = np.eye(len(s)) - np.outer(y, s) / (s @ y)
            self.inverse_hessian = turn.T @ self.inverse_hessian @ turn + np.outer(s, s) / (s @ y)
        direction = -self.inverse_hessian @ inside
        factor = 1.0
        for trial in range(1, self.max_trials + 1):
            candidate = weights + factor * self.basis.T @ direction
            if loss_of(candidate) < loss + self.sigma * factor * (inside @ direction):
                step = factor * direction
                self.last_step = step
                break
            if trial < self.max_trials:
                factor *= self.rho
        else:
            step = np.zeros_like(direction)
            if on_failure == "reference":
                step = factor * direction
            else:
                self.last_step = step
                self.inverse_hessian = np.eye(len(s))
        self.trials.append(trial)
        self.last_gradient = inside
        weights = weights + self.basis.T @ step
        if self.alpha and (len(self.trials) - 1) % self.residual_every == 0:
            outside = gradient - self.basis.T @ inside
            self.momentum = self.gamma * self.momentum + outside
            weights = weights - self.alpha * self.momentum
        return weights
