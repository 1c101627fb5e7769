"""ApplicationSets → Applications, as Argo CD's controller makes them. Pure: Git is read through a Protocol."""
